"""`uvicorn app.main:app`, for those who bring their own process manager."""

from app.bootstrap import build_app
from app.settings import Settings
from app.telemetry import configure_logging

settings = Settings()
configure_logging(settings.log_level, settings.log_format)
app = build_app(settings)
