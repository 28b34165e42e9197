package main

import (
	"github.com/spf13/cobra"

	"github.com/orbitkit/orbit/internal/cli"
	"github.com/orbitkit/orbit/server"
)

func newKeys(env cli.Environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "keys",
		Short: "Show resource keys and who holds them",
		Long: `keys shows the resource keys of a namespace, their last tokens and their holders. Nobody can
free a key or reset its tokens by hand: a holder that is gone loses it when its lease ends.`,
	}
	c.AddCommand(newKeyList(env))
	return c
}

func newKeyList(env cli.Environment) *cobra.Command {
	out := cli.Format{Env: env}
	var pages pager
	var filter server.KeyFilter
	c := &cobra.Command{
		Use:   "list",
		Short: "List the resource keys of a namespace",
		Long: `list shows the resource keys of a namespace. They lie in no order of use, and those that do
not fit are read too: with millions of keys it takes its time.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := pages.check(); err != nil {
				return err
			}
			if pages.after != "" {
				if filter.After, err = server.ParseKeyDigest(pages.after); err != nil {
					return err
				}
			}
			return withOperator(cmd.Context(), env, func(o *server.Operator) error {
				keys, more, err := o.Keys(cmd.Context(), filter, pages.limit)
				if err != nil {
					return err
				}
				next := ""
				if more {
					next = keys[len(keys)-1].Digest
				}
				const header = "KEY, LAST TOKEN, HOLDER TASK, HOLDER ATTEMPT, SINCE"
				return list(&out, keys, next, header, func(k server.KeyView) []string {
					return []string{k.Key, count(k.LastToken), k.TaskID, k.AttemptID, maybeAt(k.Since)}
				})
			})
		},
	}
	registerPlace(c.Flags(), &filter.Place, false)
	c.Flags().StringVar(&filter.Prefix, "prefix", "", "only keys that begin with this `text`")
	c.Flags().BoolVar(&filter.Held, "held", false, "only keys that somebody holds")
	pages.register(c.Flags(), "`digest` of the last key of the page before")
	out.Register(c.Flags())
	return c
}
