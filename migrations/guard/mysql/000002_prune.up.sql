-- additive: a release without pruning neither needs nor minds the index

ALTER TABLE orbit_guard_operation
    ADD KEY orbit_guard_operation_age (applied_at);
