"""What the services that carry unrolls share: messages, layouts, agreements."""
