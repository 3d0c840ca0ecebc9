"""The transport between jobs on different machines, over gRPC.

`server` answers the calls of a service, and `link` makes them. At both ends
`channels` has the options of gRPC, and `wire` encodes arrays. `security` says
who may call, and `sessions` keeps who has. `calls` and `connections` bound what
callers can take. The services are `learner_service` and `shared_replay`.
"""
