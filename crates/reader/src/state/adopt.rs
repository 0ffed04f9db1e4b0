//! Fills order options that are still at their defaults with the values that a run state records.

use std::str::FromStr;

use shardmill_order::{EpochConfig, Weight, World, weights};

use super::{OrderIdentity, RunState};

impl RunState {
    /// Sets the options of the order that `config` leaves at their default values and that the state records. States of
    /// MosaicML Streaming record none.
    ///
    /// The state does not record the weights of streams, the batch size, the number of ranks and the partition. Whether
    /// the order is that of the state is checked by [`RunState::resume`].
    pub fn adopt_order(&self, config: &mut EpochConfig) {
        let Some(identity) = &self.identity else {
            return;
        };
        let default = EpochConfig::new(Vec::new(), 1, World::SINGLE);
        if let Some(algo) = identity.term("shuffle_algo")
            && !config.shuffle.enabled
        {
            config.shuffle.enabled = algo != "none";
        }
        let (shuffle, sampling) = (default.shuffle, default.sampling);
        identity.adopt("shuffle_algo", &mut config.shuffle.algo, shuffle.algo);
        identity.adopt(
            "sampling_method",
            &mut config.sampling.method,
            sampling.method,
        );
        let granularity = &mut config.sampling.granularity;
        identity.adopt("sampling_granularity", granularity, sampling.granularity);
        let batching = &mut config.batching_method;
        identity.adopt("batching_method", batching, default.batching_method);
        // The weights are drawn with the seed of the options, which equals that of the state unless the run changed it.
        if config.shuffle.seed == shuffle.seed {
            config.shuffle.seed = self.state.shuffle_seed;
        }
        let number = |name: &str| {
            identity
                .term(name)
                .and_then(|text| text.parse::<u64>().ok())
        };
        if config.shuffle.block_size.is_none() {
            config.shuffle.block_size = number("shuffle_block_size").filter(|block| *block > 0);
        }
        let is_free =
            |weight: &Weight| matches!(weight, Weight::Unspecified | Weight::Proportion(_));
        if config.epoch_size.is_none()
            && config.streams.iter().all(|stream| is_free(&stream.weight))
            && let Some(size) = number("epoch_size")
            && let Ok(shares) = weights::shares(&config.streams, None, config.shuffle.seed)
            && shares.iter().map(|share| share.choose).sum::<u64>() != size
        {
            config.epoch_size = Some(size);
        }
    }
}

impl OrderIdentity {
    /// Replaces a default value by the recorded one.
    fn adopt<T: PartialEq + FromStr>(&self, name: &str, value: &mut T, default: T) {
        if *value == default
            && let Some(recorded) = self.term(name).and_then(|text| text.parse().ok())
        {
            *value = recorded;
        }
    }
}
