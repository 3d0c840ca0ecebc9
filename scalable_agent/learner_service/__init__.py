"""A learner's service, and the way of its actor jobs to it.

    actor job                                   learner job
    run_actor -> client.LearnerClient  ... unrolls ...>  Service -> queue
    Policy    <- client.LearnerClient  <... weights ...  Service <- learner

With inference at the learner the actor job only steps environments, and the
learner runs an `actor.Actor` for each of these jobs:

    pool     <-> stream.Stream  <... steps, actions ...>  Service <-> Actor

When such a stream ends, the learner forgets what it was shown over it.

The transport is that of `remote`, and messages with unrolls are those of
`unroll_messages`. `protocol` says which others there are, `methods` what the
service makes of them, and `intake` what of unrolls.
"""
