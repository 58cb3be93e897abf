"""An engine on another machine, behind the interface of one that is here."""
