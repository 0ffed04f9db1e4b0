//! The cache policy: which shard to fetch next, which one to evict, and what a run will cost.
//!
//! These functions do no I/O, do not wait and read no clock. The reader and the forecast both use them.

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
