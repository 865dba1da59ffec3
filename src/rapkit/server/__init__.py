"""The tool author's side: functions become durable tools."""
