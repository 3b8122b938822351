"""Tasks, their logs, idempotency keys and push configurations."""

from collections.abc import Sequence

import sqlalchemy as sa

from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
ENDED = sa.text("state IN ('TASK_STATE_CANCELED', 'TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_REJECTED')")
RUNNABLE = sa.text(
    "state NOT IN ('TASK_STATE_AUTH_REQUIRED', 'TASK_STATE_CANCELED', 'TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', "
    "'TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_REJECTED')"
)
NEWEST_FIRST = sa.text("status_ms DESC")


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "tasks",
        sa.Column("id", NAME, nullable=False),
        sa.Column("owner", sa.LargeBinary(), nullable=False),
        sa.Column("tenant", NAME, nullable=False),
        sa.Column("subject", NAME, nullable=False),
        sa.Column("context_id", NAME, nullable=True),
        sa.Column("context_hash", sa.BigInteger(), nullable=True),
        sa.Column("state", NAME, nullable=False),
        sa.Column("status_ms", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("earliest_seq", sa.BigInteger(), nullable=False),
        sa.Column("snapshot_seq", sa.BigInteger(), nullable=False),
        sa.Column("snapshot_bytes", sa.BigInteger(), nullable=False),
        sa.Column("tail_bytes", sa.BigInteger(), nullable=False),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.Column("history_length", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("turn_seq", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker", NAME, nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("task_metadata", sa.LargeBinary(), nullable=True),
        sa.Column("status_message", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index("ix_tasks_listing", "tasks", ["owner", NEWEST_FIRST, "id"])
    op.create_index("ix_tasks_context", "tasks", ["owner", "context_hash", NEWEST_FIRST, "id"])
    op.create_index("ix_tasks_state", "tasks", ["owner", "state", NEWEST_FIRST, "id"])
    op.create_index("ix_tasks_lease", "tasks", ["lease_until"], postgresql_where=RUNNABLE, sqlite_where=RUNNABLE)
    op.create_index("ix_tasks_ended", "tasks", ["status_ms"], postgresql_where=ENDED, sqlite_where=ENDED)
    op.create_table(
        "task_messages",
        sa.Column("task_id", NAME, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "position", name=op.f("pk_task_messages")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "task_snapshots",
        sa.Column("task_id", NAME, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_task_snapshots")),
    )
    op.create_table(
        "task_events",
        sa.Column("task_id", NAME, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "seq", name=op.f("pk_task_events")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", NAME, nullable=False),
        sa.Column("owner", sa.LargeBinary(), nullable=False),
        sa.Column("message_id", NAME, nullable=False),
        sa.Column("task_id", NAME, nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", "owner", name=op.f("pk_idempotency_keys")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_idempotency_keys_created_ms", "idempotency_keys", ["created_ms"])
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


def downgrade() -> None:
    """Drop all tables, with their data."""
    for table in ("push_configs", "idempotency_keys", "task_events", "task_snapshots", "task_messages", "tasks"):
        op.drop_table(table)
