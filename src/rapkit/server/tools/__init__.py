"""Tools as their author writes them: signature, input schema, context, hooks and output."""
