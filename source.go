package orbit

import "context"

// Kinds of source.
const (
	SourceSubmit      = "SUBMIT"       // an ordinary submit
	SourceManualRetry = "MANUAL_RETRY" // a retry by hand; TaskID is the task that it repeats
	SourceSchedule    = "SCHEDULE"     // a trigger of a schedule
)

// A Source is the direct origin of a task (GET-007).
type Source struct {
	Kind       string `json:"kind"`
	TaskID     string `json:"task_id,omitempty"`     // of a MANUAL_RETRY
	ScheduleID string `json:"schedule_id,omitempty"` // of a SCHEDULE, as are the next two
	TriggerID  string `json:"trigger_id,omitempty"`
	Version    string `json:"version,omitempty"`
}

// AppendJSON appends the contract form of s.
func (s *Source) AppendJSON(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.string("kind", s.Kind)
	o.optionalString("task_id", s.TaskID)
	o.optionalString("schedule_id", s.ScheduleID)
	o.optionalString("trigger_id", s.TriggerID)
	o.optionalString("version", s.Version)
	return o.end()
}

// GetTaskSource reads where a task comes from. Its errors are those of [Client.GetTask].
func (c *Client) GetTaskSource(ctx context.Context, taskID string) (Source, error) {
	if !ValidID(taskID) {
		return Source{}, invalid("task_id", "must be 32 lower-case hexadecimal characters")
	}
	var s Source
	return s, c.get(ctx, "read source of task", submitPath+"/"+taskID+"/source", maxSingleAnswer, &s)
}
