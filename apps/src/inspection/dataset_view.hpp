#pragma once

#include <boost/json.hpp>
#include <heddle/io/dataset/dataset.hpp>
#include <heddle/io/dataset/sample_source.hpp>
#include <vector>

#include "inspection/model/model_view.hpp"

namespace heddle {

/// {"name", "content", "samples", "sides": [{"name", "tokens", "histogram": [[from, to, samples]]}], "examples":
/// [[text, …]], "pack": {"sides": [{"name", "lengths"}]}}: the pack is that of the first samples, of a text's lines
/// before they are joined.
boost::json::object to_json(Dataset const& dataset, std::int64_t examples);

/// {"sides": [{"name", "lengths"}]}: the first samples as a model of this max_length reads them, lines joined to
/// sequences. `samples` are those of the dataset (samples_for); their longer ones are left out, as in training.
boost::json::object pack_of_samples(SampleSource const& samples, Dataset const& dataset, std::int64_t max_length);

/// Short samples from the beginning of a dataset, at most `count`.
std::vector<SentenceText> example_sentences(Dataset const& dataset, std::size_t count);

}  // namespace heddle
