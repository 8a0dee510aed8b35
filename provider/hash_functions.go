package provider

import (
	"context"
	"fmt"
	"math/big"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// The functions compute what the coordinator and its clients compute, with their code: no
// request, no clock, the same result for ever.

// signature is what one function is called with and what it answers.
type signature struct {
	name, summary, description string
	parameters                 []function.Parameter
	result                     function.Return
	run                        func(context.Context, function.RunRequest, *function.RunResponse)
}

func (f *signature) Metadata(_ context.Context, _ function.MetadataRequest, resp *function.MetadataResponse) {
	resp.Name = f.name
}

func (f *signature) Definition(_ context.Context, _ function.DefinitionRequest, resp *function.DefinitionResponse) {
	resp.Definition = function.Definition{
		Summary: f.summary, MarkdownDescription: f.description, Parameters: f.parameters, Return: f.result,
	}
}

func (f *signature) Run(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
	f.run(ctx, req, resp)
}

func newShardIndexFunction() function.Function {
	return &signature{
		name: "shard_index", summary: "Shard to which a partition key belongs",
		description: "Index of the shard, from 0 to `count` − 1, to which producers send entries of a partition key, while the stream has `count` shards. " +
			"It is the hash `" + protocol.HashName + "` over the UTF-8 bytes of the key. Terraform itself brings strings into Unicode's normal form C: a key that " +
			"producers send in another form is not the key that this function gets.",
		parameters: []function.Parameter{
			function.StringParameter{Name: "key", MarkdownDescription: "Partition key. It may be empty."},
			countParameter("count", 1),
		},
		result: function.Int64Return{},
		run: func(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
			var key string
			var number *big.Float
			if resp.Error = req.Arguments.Get(ctx, &key, &number); resp.Error != nil {
				return
			}
			count, ok := countArgument(resp, 1, number, 1)
			if !ok {
				return
			}
			index, _ := protocol.ShardIndex([]byte(key), count) // a count of 1 or more has a shard
			resp.Error = resp.Result.Set(ctx, int64(index))
		},
	}
}

func newShardKeysFunction() function.Function {
	return &signature{
		name: "shard_keys", summary: "Redis keys of the shards of a stream",
		description: "The Redis keys of a stream with `count` shards, in the order of their index: for access rules, dashboards and the like. " +
			"They are what such a stream is laid out as, whether it exists or not.",
		parameters: []function.Parameter{
			function.StringParameter{Name: "prefix", MarkdownDescription: "Stream prefix: 1 to 256 bytes without white space, control characters, braces and slashes."},
			countParameter("count", 0),
		},
		result: function.ListReturn{ElementType: types.StringType},
		run: func(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
			var prefix string
			var number *big.Float
			if resp.Error = req.Arguments.Get(ctx, &prefix, &number); resp.Error != nil {
				return
			}
			if e := protocol.CheckName("prefix", prefix); e != nil {
				resp.Error = function.NewArgumentFuncError(0, e.Message)
				return
			}
			count, ok := countArgument(resp, 1, number, 0)
			if !ok {
				return
			}
			keys := make([]string, count)
			for i := range keys {
				keys[i] = protocol.ShardKey(prefix, i)
			}
			resp.Error = resp.Result.Set(ctx, keys)
		},
	}
}

func newHashSlotFunction() function.Function {
	return &signature{
		name: "hash_slot", summary: "Redis Cluster slot of a key",
		description: "Hash slot of a Redis key on a Redis Cluster, 0 to 16383: CRC16 of the hash tag, the part between the first `{` and the next `}`, if it is not empty, else of the whole key. " +
			"The same as `CLUSTER KEYSLOT`.",
		parameters: []function.Parameter{function.StringParameter{Name: "key", MarkdownDescription: "Redis key."}},
		result:     function.Int64Return{},
		run: func(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
			var key string
			if resp.Error = req.Arguments.Get(ctx, &key); resp.Error == nil {
				resp.Error = resp.Result.Set(ctx, int64(protocol.RedisSlot(key)))
			}
		},
	}
}

func newMovedFractionFunction() function.Function {
	return &signature{
		name: "moved_fraction", summary: "Share of keys that a change of the shard count moves",
		description: "Share of all partition keys, from 0 to 1, whose shard differs between two shard counts: 1 − min(from, to) ÷ lcm(from, to). " +
			"Doubling moves half of the keys, going from 8 to 9 shards eight ninths. A count of 0 has no shards: all keys move.",
		parameters: []function.Parameter{countParameter("from", 0), countParameter("to", 0)},
		result:     function.Float64Return{},
		run: func(ctx context.Context, req function.RunRequest, resp *function.RunResponse) {
			var numbers [2]*big.Float
			if resp.Error = req.Arguments.Get(ctx, &numbers[0], &numbers[1]); resp.Error != nil {
				return
			}
			from, ok := countArgument(resp, 0, numbers[0], 0)
			if !ok {
				return
			}
			to, ok := countArgument(resp, 1, numbers[1], 0)
			if !ok {
				return
			}
			resp.Error = resp.Result.Set(ctx, protocol.MovedFraction(from, to))
		},
	}
}

func countParameter(name string, least int) function.Parameter {
	return function.NumberParameter{Name: name, MarkdownDescription: fmt.Sprintf("Number of shards, %d to %d.", least, protocol.MaxShardCount)}
}

// countArgument is an argument as a shard count, or its refusal. The framework's own whole numbers
// report a fraction as a fault of the provider.
func countArgument(resp *function.RunResponse, argument int64, n *big.Float, least int64) (count int, ok bool) {
	whole, accuracy := n.Int64()
	if accuracy != big.Exact {
		resp.Error = function.NewArgumentFuncError(argument, fmt.Sprintf("the shard count: is %s; it must be a whole number between %d and %d", n.Text('g', 10), least, protocol.MaxShardCount))
		return 0, false
	}
	if e := protocol.CheckShardCount("the shard count", whole, least); e != nil {
		resp.Error = function.NewArgumentFuncError(argument, e.Message)
		return 0, false
	}
	return int(whole), true
}
