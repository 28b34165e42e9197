package orbit_test

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/orbitkit/orbit"
)

// A request is frozen once: what is sent, and what is compared, is fixed.
func ExampleSubmitTaskRequest_Freeze() {
	body, s, err := orbit.SubmitTaskRequest{
		QueueID:        "11111111111111111111111111111111",
		Handler:        "object.update",
		HandlerVersion: "v1",
		PayloadVersion: "v1",
		Payload:        json.RawMessage(`{"operation_ref":"update-001","object_ref":"objects/42"}`),
		ConcurrencyKey: "object/42",
	}.Freeze()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(body))
	fmt.Println(s.Digest)
	fmt.Println(s.Request.TaskTimeoutMS, s.Request.Retry.MaxAttempts, s.Request.RecoverySafety)
	// Output:
	// {"queue_id":"11111111111111111111111111111111","handler":"object.update","handler_version":"v1","payload_version":"v1","payload":{"operation_ref":"update-001","object_ref":"objects/42"},"concurrency_key":"object/42"}
	// orbit-json-v1:9548dcaa0a2be623f92646cf28244dddac008ecc02248cc03b3b0f3a7e1f5925
	// 86400000 1 RECONCILE_ONLY
}

// A refused request names the field and the rule, and no value.
func ExampleInvalidArgumentError() {
	_, err := orbit.ParseSubmission([]byte(`{"queue_id":"11111111111111111111111111111111",
		"handler":"h","handler_version":"v1","payload_version":"v1",
		"payload":{"items":[{"price":1},{"price":1e400}]}}`))
	var bad *orbit.InvalidArgumentError
	if errors.As(err, &bad) {
		fmt.Println(bad.Field)
		fmt.Println(bad.Rule)
	}
	// Output:
	// payload.items[1].price
	// number exponent must be within -308 and 308
}
