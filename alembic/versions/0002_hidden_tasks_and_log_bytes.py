"""Tasks that are answered with a bare Message are never seen; logs are bounded by their bytes."""

from collections.abc import Sequence

import sqlalchemy as sa

from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Add the columns; what a log had before is not counted."""
    op.add_column("tasks", sa.Column("hidden", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("tasks", sa.Column("log_bytes", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    """Remove the tasks that were hidden, and the columns."""
    tasks = sa.table("tasks", sa.column("id", sa.Text), sa.column("hidden", sa.Boolean))
    hidden = sa.select(tasks.c.id).where(tasks.c.hidden)
    for name in ("task_messages", "task_snapshots", "task_events", "push_configs"):
        part = sa.table(name, sa.column("task_id", sa.Text))
        op.execute(part.delete().where(part.c.task_id.in_(hidden)))
    op.execute(tasks.delete().where(tasks.c.hidden))
    op.drop_column("tasks", "log_bytes")
    op.drop_column("tasks", "hidden")
