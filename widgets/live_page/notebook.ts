// The real model's files for the notebooks beside this page (labengine/live_page/model_offer.py).
export { fetched, refusal } from "./fetched.ts";
export { areKept, listed } from "./weights.ts";
