"""Tool loop, MCP sessions and built-in tools."""
