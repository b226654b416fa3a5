"""``crumb-tasks run``: any model under any condition, each result kept apart from every other.

- `condition`: what makes a result another than MTEB's of the same model and task
- `rewriting`, `first_stage`: conditions that come from files; `candidates`: what a first stage gives to each query
- `cache`, `records`: MTEB's result cache, safe against kills, and what a result was made of
- `plan`: which tasks are asked for, and which results still hold
- `preparing`, `execute`, `outcomes`: evaluating the others, one by one
- `side_by_side`: several at once, where a cluster does the work
- `progress`: how far it has got
- `directories`: names for local models
- `summary`: the tables at the end
- `asking`, `costs`: what results cost
- `points`, `sweeping`: what approximate search saves and loses
"""
