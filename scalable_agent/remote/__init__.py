"""Actor jobs and learners on different machines, over gRPC.

    actor job                                   learner job
    run_actor -> client.LearnerClient  ... unrolls ...>  Service -> queue
    Policy    <- client.LearnerClient  <... weights ...  Service <- learner

With inference at the learner the actor job only steps environments, and the
learner runs an `actor.Actor` for each of these jobs:

    pool     <-> stream.Stream  <... steps, actions ...>  Service <-> Actor

`wire` says what a message is, `protocol` which there are, `security` who may
send them, `sessions` who has, `methods` what the service makes of them. The two
ends are those of any service: `server` answers calls, `link` makes them,
`channels` says what gRPC is to do at both, and `calls` and `connections` bound
what others can take. `shared_replay` has them too.
"""
