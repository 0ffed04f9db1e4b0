//! What a cache that knows the future does: which shard comes next, which one leaves, and what a run will cost.
//!
//! Nothing here reads, waits or looks at a clock. The reader and the forecast ask the same functions.

mod forecast;
mod policy;
mod ranks;
mod simulate;

pub use forecast::{
    CacheEpoch, CacheForecast, EpochFacts, Forecast, ForecastOptions, NodeForecast, Point,
    ShardCost, forecast,
};
pub use policy::{AccessPlan, AccessWindow, Resident, make_room};
pub use simulate::{Policy, SimEpoch, SimReport, simulate};
