#include "variant_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/checks/compare.hpp>
#include <heddle/core/model/pipeline_plan.hpp>
#include <heddle/core/tensor/doubles.hpp>

namespace heddle {
namespace {

std::vector<std::string> layouts_of(ModelDescription const& model) {
  auto const allowed = [&](LayerUse const& use) { return model.unsupported_reason(use) ? "no" : "yes"; };
  auto const cut = [&] {
    ParallelConfig parallel;
    parallel.pipeline = 2;
    return plan_pipeline(model, parallel, 1000).stages() == 2 ? "yes" : "no";
  };
  return {allowed({.tensor = 2}),
          allowed({.tensor = 2, .sequence_parallel = true}),
          allowed({.context = 2}),
          allowed({.context = 2, .context_mode = ContextMode::ulysses}),
          cut(),
          model.no_generation_reason() ? "no" : "yes"};
}

std::vector<Sample> pairs_of(std::vector<std::int32_t> const& source_lengths,
                             std::vector<std::int32_t> const& target_lengths) {
  // Tokens of a vocabulary of 23, without the special ones; each length counts one special token.
  auto const tokens = [](std::int32_t length, std::int32_t sample) {
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 1; i < length; ++i) {
      ids.push_back(3 + (7 * sample + 5 * i) % 20);
    }
    return ids;
  };
  std::vector<Sample> pairs;
  for (std::size_t i = 0; i < target_lengths.size(); ++i) {
    auto const sample = static_cast<std::int32_t>(i);
    pairs.push_back({sample, tokens(source_lengths[i], sample), tokens(target_lengths[i], sample)});
  }
  return pairs;
}

/// The lines of one row.
std::string row_of(VariantResult const& result) {
  std::string row = result.refusal.empty() ? fmt::format("| {} | {:.0e} | {:.0e} |", result.name, result.output_error,
                                                         result.gradient_error)
                                           : fmt::format("| {} | - | - |", result.name);
  for (std::string const& layout : result.layouts) {
    row += fmt::format(" {} |", layout);
  }
  for (double const time : result.times) {
    row += time > 0 ? fmt::format(" {:.2f} |", time) : " - |";
  }
  return row + "\n";
}

}  // namespace

VariantResult variant_result(VariantsRequest const& request, std::string_view name, ModelDescription const& model,
                             ComputeVariant const& compute) {
  VariantResult result{.name = std::string(name), .layouts = layouts_of(model)};
  KernelRegistries const reference = request.registries.kernels.preferring_reference();
  KernelChoices const any;
  VariantValues const expected = compute({reference, any}, DType::float64);
  try {
    VariantValues const actual = compute({request.registries.kernels, request.choices}, DType::float32);
    result.output_error = difference("output", actual.output, expected.output).error;
    result.gradient_error = difference("gradients", actual.gradients, expected.gradients).error;
  } catch (ConfigError const& error) {
    result.refusal = error.what();
  }
  return result;
}

void set_variant_parameters(ParameterSet& parameters, DType dtype) {
  parameters.allocate(dtype);
  for (Parameter const& parameter : parameters.all()) {
    copy_from_doubles(parameter.value, random_numbers(parameter.value.size(), parameter.spec.name, 0.5));
  }
  parameters.bump_versions();
}

Pack variant_pack(std::vector<std::int32_t> const& source_lengths, std::vector<std::int32_t> const& target_lengths) {
  Pack pack = make_pack(pairs_of(source_lengths, target_lengths),
                        {.source = {.begin = 1, .end = 2}, .target = {.begin = 1, .end = 2}});
  std::vector<std::int32_t> prefixes;
  std::ranges::transform(target_lengths, std::back_inserter(prefixes), [](std::int32_t length) { return length / 3; });
  pack.target_rows.prefix_length = from_host<std::int32_t>(prefixes, {pack.target_rows.sequences.count});
  return pack;
}

std::string to_markdown(std::vector<VariantResult> const& results) {
  bool const timed = !results.empty() && !results.front().times.empty();
  std::string text = "| variant | output | gradient |";
  std::string rule = "| --- | --- | --- |";
  for (std::string_view const name : layout_names) {
    text += fmt::format(" {} |", name);
    rule += " --- |";
  }
  for (std::int64_t const length : timed_lengths) {
    text += timed ? fmt::format(" {} |", length) : "";
    rule += timed ? " --- |" : "";
  }
  text += "\n" + rule + "\n";
  std::string notes = "\n";
  for (VariantResult const& result : results) {
    text += row_of(result);
    notes += result.refusal.empty() ? "" : fmt::format("- {}: {}\n", result.name, result.refusal);
  }
  return notes.size() > 1 ? text + notes : text;
}

}  // namespace heddle
