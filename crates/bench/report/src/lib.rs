//! What a benchmark run found, and how it is shown: the machine it ran on, its measurements, latencies and
//! bounds, as JSON to keep and as HTML to read. It measures nothing itself and knows neither a medium nor the engine.
#![forbid(unsafe_code)]
