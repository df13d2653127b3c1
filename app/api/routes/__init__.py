"""All routers. Those below `/v1` need a key."""

from app.api.routes import (
    admin,
    artifacts,
    audit,
    garbage,
    health,
    job_files,
    job_records,
    jobs,
    keys,
    methods,
    problems,
    secrets,
    usage,
)

ROUTERS = (
    health.router,
    problems.router,
    methods.router,
    jobs.router,
    job_records.router,
    job_files.router,
    artifacts.router,
    artifacts.public_router,
    keys.router,
    usage.router,
    admin.router,
    garbage.router,
    secrets.router,
    audit.router,
)
