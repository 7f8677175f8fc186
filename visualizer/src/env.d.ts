/** Set by vite.config.ts: whether the development server passes /api on to an `rlm view`. */
declare const __HAS_SERVER__: boolean
