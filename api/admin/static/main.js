// What every page of the dashboard does.

import { startActions } from "./actions.js";
import { startPolling } from "./poll.js";
import { localTimes } from "./times.js";

startActions();
startPolling();
localTimes();
