"""All routers: public ones at the root, those that need a key below `/v1`."""

from app.api.routes import artifacts, health, job_files, job_records, jobs, keys, methods, problems

ROUTERS = (health.router, problems.router, artifacts.public_router)
V1_ROUTERS = (
    methods.router,
    jobs.router,
    job_records.router,
    job_files.router,
    artifacts.router,
    keys.router,
)
