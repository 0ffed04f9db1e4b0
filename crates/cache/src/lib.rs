//! Decides which blob a cache fetches next and which one it evicts, and forecasts what a run will cost.
//!
//! These functions do no I/O, do not wait and read no clock. The reader and the forecast both use them.

mod forecast;
mod policy;
mod ranks;
#[cfg(test)]
mod simulate;

pub use forecast::{
    CacheEpoch, CacheForecast, EpochFacts, Forecast, ForecastOptions, NodeForecast, Point,
    ShardCost, forecast,
};
pub use policy::{AccessPlan, AccessWindow, Resident, make_room};
