"""From the graph after all passes to a plan: tasks, order, streams, memory, loops."""
