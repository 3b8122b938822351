"""What a balancer asks."""

from fastapi import APIRouter

from app.api.deps import ServicesDep
from app.protocol.errors import UnavailableError

router = APIRouter(tags=["operations"])


@router.get("/healthz", operation_id="Healthz", summary="Is the process alive?")
async def healthz() -> dict[str, str]:
    """Answers 200 as long as the process serves requests."""
    return {"status": "ok"}


@router.get("/readyz", operation_id="Readyz", summary="Does the process want requests?")
async def readyz(services: ServicesDep) -> dict[str, str]:
    """Answers 200 while the store is within reach and the process is not about to end, else 503."""
    if services.draining:
        raise UnavailableError("The server is shutting down.")
    await services.store.ping()
    return {"status": "ready"}
