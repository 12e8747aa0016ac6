"""Parts that commands of all kinds share: options, messages, tables, the shape of records on the screen."""
