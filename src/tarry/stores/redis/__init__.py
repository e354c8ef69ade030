"""Redis: many machines, the highest rate; one Lua script per verb."""
