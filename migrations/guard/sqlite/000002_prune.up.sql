-- additive: a release without pruning neither needs nor minds the index

CREATE INDEX orbit_guard_operation_age ON orbit_guard_operation (applied_at);
