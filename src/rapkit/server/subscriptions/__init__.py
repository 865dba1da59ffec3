"""Running subscriptions: their events, their topics and their stored state."""
