"""From scores to ranked lists, exactly and in bounded memory."""
