"""How a new supervisor takes over: it joins the reports of its peers by tables, and listens until it knows everything."""
