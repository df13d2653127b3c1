"""All routers: public ones at the root, those that need a key below `/v1`."""

from app.api.routes import health, jobs, keys, methods, problems

ROUTERS = (health.router, problems.router)
V1_ROUTERS = (methods.router, jobs.router, keys.router)
