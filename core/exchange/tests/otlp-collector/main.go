// Reads a file of profiles as an OpenTelemetry collector does, with the collector's own library, and prints what it found.
//
// Enters: a ProfilesData message, and the name of a second file. Leaves: for each profile a line with its kinds, its period and the
// sum of its values, and a row for each place that has some; below them the images. The second file receives the message as the
// collector would send it on, which is without the fields that it does not know. Never here: an index that is in no table passes.
package main

import (
	"fmt"
	"os"
	"sort"

	"go.opentelemetry.io/collector/pdata/pprofile"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file, onward string) error {
	sent, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	profiles, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(sent)
	if err != nil {
		return err
	}
	again, err := (&pprofile.ProtoMarshaler{}).MarshalProfiles(profiles)
	if err != nil {
		return err
	}
	if err := os.WriteFile(onward, again, 0o644); err != nil {
		return err
	}
	// Merging, as a collector does before it sends a batch, follows every index of every table.
	merged := pprofile.NewProfiles()
	if err := profiles.MergeTo(merged); err != nil {
		return err
	}
	show(merged)
	return nil
}

func show(profiles pprofile.Profiles) {
	dictionary := profiles.Dictionary()
	text := func(index int32) string { return dictionary.StringTable().At(int(index)) }
	for _, resource := range profiles.ResourceProfiles().All() {
		for _, scope := range resource.ScopeProfiles().All() {
			for _, profile := range scope.Profiles().All() {
				kind, period := profile.SampleType(), profile.PeriodType()
				total, rows := sums(dictionary, profile)
				fmt.Printf("%s: %d %s of %s, one each %d %s, in %d ns\n", text(kind.TypeStrindex()), total, text(kind.UnitStrindex()),
					text(period.TypeStrindex()), profile.Period(), text(period.UnitStrindex()), profile.DurationNano())
				for _, row := range rows {
					fmt.Println(row)
				}
			}
		}
	}
	for _, mapping := range dictionary.MappingTable().All() {
		for _, index := range mapping.AttributeIndices().All() {
			attribute := dictionary.AttributeTable().At(int(index))
			fmt.Printf("%s: %s %s\n", text(mapping.FilenameStrindex()), text(attribute.KeyStrindex()), attribute.Value().AsString())
		}
	}
}

// sums returns the sum of a profile's values, and a sorted row for each place that has some: its calls, innermost first.
func sums(dictionary pprofile.ProfilesDictionary, profile pprofile.Profile) (int64, []string) {
	total, places := int64(0), map[string]int64{}
	for _, sample := range profile.Samples().All() {
		place := ""
		for _, index := range dictionary.StackTable().At(int(sample.StackIndex())).LocationIndices().All() {
			location := dictionary.LocationTable().At(int(index))
			place += fmt.Sprintf(" %#x", location.Address())
			for _, line := range location.Lines().All() {
				function := dictionary.FunctionTable().At(int(line.FunctionIndex()))
				name := dictionary.StringTable().At(int(function.NameStrindex()))
				file := dictionary.StringTable().At(int(function.FilenameStrindex()))
				place += fmt.Sprintf(" %s@%s:%d", name, file, line.Line())
			}
		}
		for _, value := range sample.Values().All() {
			places[place] += value
			total += value
		}
	}
	rows := make([]string, 0, len(places))
	for place, value := range places {
		rows = append(rows, fmt.Sprintf("  %d%s", value, place))
	}
	sort.Strings(rows)
	return total, rows
}
