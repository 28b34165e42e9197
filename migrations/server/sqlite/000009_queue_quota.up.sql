-- 并发上限，0 为不限
ALTER TABLE queue ADD COLUMN max_concurrency INTEGER NOT NULL DEFAULT 0;

-- 积压上限，0 为不限
ALTER TABLE queue ADD COLUMN max_backlog INTEGER NOT NULL DEFAULT 0;

-- 未完成任务数，设限时重新计数
ALTER TABLE queue ADD COLUMN unfinished INTEGER NOT NULL DEFAULT 0;
