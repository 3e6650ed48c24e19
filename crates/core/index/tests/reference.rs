//! The suite on the reference index, which must pass.

use pando_index::RangeIndex;
use pando_index::conformance::Reference;

pando_index::conformance_suite!(Reference::default);

/// Small limits, which an index may have: keys and values are cut to them.
mod small_limits {
    use pando_index::Limits;
    use pando_index::conformance::{Reference, run_case};

    #[test]
    fn edges_and_models() {
        let limits = Limits { max_key_bytes: 100, max_value_bytes: 12_000 };
        let factory = move || Reference::with_limits(limits);
        for case in [
            "longest_key",
            "key_too_long",
            "value_too_long",
            "value_of_20_mebibytes",
            "one_giant_record",
            "long_shared_prefix",
            "model_mixed_keys",
            "refusals_change_nothing",
        ] {
            run_case(case, &factory);
        }
    }
}

#[test]
fn a_boxed_index_is_a_subject() {
    pando_index::conformance::run_case("empty_key", &|| {
        Box::new(Reference::default()) as Box<dyn RangeIndex>
    });
}
