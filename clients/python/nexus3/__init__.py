"""Client of the nexus3 agent server: `nexus3.client` for asyncio, `nexus3.sync` for threads that wait."""
