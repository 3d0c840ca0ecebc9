"""Replay that several agents share: a job of its own, and their way to it.

    learner A                                         replay job
    DrawnUnrolls, or
    DrawnEpisodes -> AgentLink  ... new unrolls ...>  Service -> Contents
                                <... drawn ones ....
    learner B ...

Schmitt et al., "Off-Policy Actor-Critic with Shared Experience Replay", 2020,
https://arxiv.org/abs/1909.11583, section 5.1. The transport is that of
`remote`, and so are its token, TLS and bounds; messages with unrolls are those
of `unroll_messages`. `protocol` says what a message is, `contents` what is
kept, `pace` who has to wait for whom.
"""
