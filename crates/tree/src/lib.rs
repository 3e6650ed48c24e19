//! What all indexes share. It stands above `pando-pmwcas` and below every index.
