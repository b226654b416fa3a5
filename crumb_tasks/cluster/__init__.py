"""The same search on a Ray cluster: shards of a corpus on many workers, merged into the ranking of one process.

Ray places, starts and watches the workers; what stands here says what they do. One job a module:

- `shards`: where a corpus or a list of queries is cut
- `jobs`: what a worker is asked and what it answers
- `working`: what it does, without Ray: reading its shard, encoding, searching
- `patience`: an encoding that halves its batches when memory runs out
- `merging`: the answers of all shards, exactly
- `keeping`: finished shards on disk, for a run that goes on
- `schedule`: which worker gets which shard next, and how often one is tried
- `places`: the Ray cluster and what a worker gets of it
- `pool`, `slots`, `actors`, `states`: that schedule on Ray's actors
- `loading`: a model whose weights are on workers
- `mteb_tasks`: MTEB's own tasks, each on one worker
- `remote`: a model that ranks on the cluster, for whoever has a `crumb_tasks.request.Request`
- `turns`: several tasks at once on the driver, one at a time in its code
- `view`: how far all of it has got
"""
