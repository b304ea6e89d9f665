// Scripts of every page of the dashboard.

import { startActions } from "./actions.js";
import { showEntry } from "./navigation.js";
import { startPolling } from "./poll.js";
import { localTimes } from "./times.js";

showEntry();
startActions();
startPolling();
localTimes();
