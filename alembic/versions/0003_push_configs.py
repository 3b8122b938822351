"""Push configurations with what their delivery needs. The table there was had never been written to."""

from collections.abc import Sequence

import sqlalchemy as sa

from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
DELIVERABLE = sa.text("state = 'active'")


def upgrade() -> None:
    """Replace the table."""
    op.drop_table("push_configs")
    op.create_table(
        "push_configs",
        sa.Column("task_id", NAME, nullable=False),
        sa.Column("config_hash", sa.LargeBinary(), nullable=False),
        sa.Column("state", NAME, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("due_ms", sa.BigInteger(), nullable=False),
        sa.Column("claimed_by", NAME, nullable=True),
        sa.Column("claimed_until", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "config_hash", name=op.f("pk_push_configs")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index(
        "ix_push_configs_due_ms", "push_configs", ["due_ms"], postgresql_where=DELIVERABLE, sqlite_where=DELIVERABLE
    )


def downgrade() -> None:
    """Bring the old table back, empty."""
    op.drop_table("push_configs")
    op.create_table(
        "push_configs",
        sa.Column("task_id", NAME, nullable=False),
        sa.Column("config_id", NAME, nullable=False),
        sa.Column("owner", sa.LargeBinary(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "config_id", name=op.f("pk_push_configs")),
    )
