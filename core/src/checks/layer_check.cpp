#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <heddle/core/base/error.hpp>
#include <heddle/core/checks/check.hpp>
#include <heddle/core/checks/compare.hpp>
#include <heddle/core/tensor/doubles.hpp>
#include <span>

#include "crash_note.hpp"

namespace heddle {

namespace {

using Values = std::vector<double>;

constexpr SideIds ids{.source = {.begin = 1, .end = 2}, .target = {.begin = 1, .end = 2}};
/// Parameter gradients start from it, as a layer adds to them.
constexpr double already = 0.5;

ModelConfig small_model(LayerTrial const& trial) {
  ModelConfig model;
  model.d_model = 6;
  model.d_ff = 8;
  model.heads = 2;
  model.max_length = 8;
  model.dropout = 0.2;
  model.attention_dropout = 0.2;
  model.activation_dropout = 0.2;
  if (trial.set) {
    trial.set(model);
  }
  return model;
}

LayerOptions options_of(LayerTrial const& trial, LayerRegistry::Entry const& entry) {
  Settings settings;
  for (auto const& [name, value] : trial.options) {
    settings[name] = {.value = value, .origin = "a trial", .key = name};
  }
  LayerOptions options(std::move(settings), entry.name);
  options.check(entry.traits.options);
  return options;
}

Tensor random_tensor(Shape const& shape, std::string_view name) {
  return from_doubles(random_numbers(shape.size(), name), DType::float64, shape);
}

/// A layer with its surroundings on one rank, in float64.
struct Bench {
  ModelConfig model;
  KernelRegistries kernels;
  KernelChoices choices{};
  ParallelState parallel{};
  ParameterSet parameters{parallel.mesh};
  LayerSpec spec;
  std::unique_ptr<Layer> layer;
  Arena arena{};

  Bench(Registries const& registries, LayerRegistry::Entry const& entry, LayerTrial const& trial, Side side)
      : model(small_model(trial)),
        kernels(registries.kernels.preferring_reference()),
        spec{.name = "stack.layers.0." + entry.name,
             .side = side,
             .model = model,
             .dtype = DType::float64,
             .kernels = {kernels, choices},
             .parallel = parallel,
             .parameters = parameters,
             .options = options_of(trial, entry)},
        layer(registries.layers.build(entry.name, spec)) {
    parameters.allocate(DType::float64);
    for (Parameter const& parameter : parameters.all()) {
      copy_from_doubles(parameter.value, random_numbers(parameter.value.size(), parameter.spec.name));
    }
    parameters.bump_versions();
  }

  LayerContext context(Execution& execution, Pack const& pack, bool training) {
    return {.execution = execution, .arena = arena, .pack = pack, .training = training, .seed = 5, .step = 3};
  }
};

class GradientCheck {
 public:
  GradientCheck(Bench& bench, Side side, Execution& execution)
      : bench_(bench),
        side_(side),
        pack_(make_pack(pairs(), ids)),
        context_(bench.context(execution, pack_, true)),
        input_(random_input(pack_)),
        hidden_factors_(random_numbers(input_.hidden.size(), "hidden factors")),
        encoder_output_factors_(random_numbers(input_.encoder_output.size(), "memory factors")) {}

  void run(CheckResult& found) {
    Saved saved;
    Values const output = values_of(bench_.layer->forward(context_, input_, saved));
    forward_again(output, found);
    forward_another();
    Tensor const& gradients = bench_.parameters.gradients();
    copy_from_doubles(gradients, Values(static_cast<std::size_t>(gradients.size()), already));
    HiddenStates const grad_output{
        from_doubles(hidden_factors_, DType::float64, input_.hidden.shape()),
        bench_.spec.has_encoder_output()
            ? from_doubles(encoder_output_factors_, DType::float64, input_.encoder_output.shape())
            : Tensor()};
    HiddenStates const grad_input = bench_.layer->backward(context_, grad_output, saved);
    compare("input", input_.hidden, to_doubles(grad_input.hidden), found);
    if (bench_.spec.has_encoder_output()) {
      compare("encoder_output", input_.encoder_output, to_doubles(grad_input.encoder_output), found);
    }
    for (Parameter const& parameter : bench_.parameters.all()) {
      Values gradient = to_doubles(parameter.gradient);
      std::for_each(gradient.begin(), gradient.end(), [](double& value) { value -= already; });
      compare(parameter.spec.name, parameter.value, gradient, found);
    }
  }

 private:
  static std::vector<SentencePair> pairs() { return {{4, {5, 6, 5}, {7}}, {9, {}, {4, 4, 8}}, {2, {7, 3}, {}}}; }

  HiddenStates random_input(Pack const& pack, std::string const& name = "") const {
    std::int64_t const columns = bench_.model.d_model;
    return {random_tensor({pack.rows(side_).tokens, columns}, name + "input"),
            bench_.spec.has_encoder_output() ? random_tensor({pack.source_rows.tokens, columns}, name + "memory")
                                             : Tensor()};
  }

  static Values values_of(HiddenStates const& output) {
    Values values = to_doubles(output.hidden);
    std::ranges::copy(to_doubles(output.encoder_output), std::back_inserter(values));
    return values;
  }

  /// A layer is a function of its inputs, to the bit: with recomputation forward is called again before backward.
  void forward_again(Values const& first, CheckResult& found) {
    Saved saved;
    Values const again = values_of(bench_.layer->forward(context_, input_, saved));
    Difference const here = difference("output of forward, called again with the same inputs", again, first);
    found.output_error = here.error;
    found.fault = here.words;
  }

  /// Forward of another micro-batch, as several may be in flight: backward needs what forward kept of its own one.
  void forward_another() {
    std::vector<SentencePair> const all = pairs();
    Pack const pack = make_pack(std::span(all).last(2), ids);
    LayerContext context = bench_.context(context_.execution, pack, true);
    Saved saved;
    static_cast<void>(bench_.layer->forward(context, random_input(pack, "another "), saved));
  }

  double objective() {
    ArenaScope const scope(bench_.arena);
    Saved saved;
    HiddenStates const output = bench_.layer->forward(context_, input_, saved);
    return weighted_sum(hidden_factors_, to_doubles(output.hidden)) +
           (bench_.spec.has_encoder_output() ? weighted_sum(encoder_output_factors_, to_doubles(output.encoder_output))
                                             : 0);
  }

  void compare(std::string const& name, Tensor const& variable, Values const& gradient, CheckResult& found) {
    auto const value_at = [&](Values const& values) {
      Values const before = to_doubles(variable);
      copy_from_doubles(variable, values);
      bench_.parameters.bump_versions();
      double const value = objective();
      copy_from_doubles(variable, before);
      bench_.parameters.bump_versions();
      return value;
    };
    note(central_difference({"gradient of " + name, to_doubles(variable), gradient, value_at}),
         &CheckResult::gradient_error, found);
  }

  Bench& bench_;
  Side side_;
  Pack pack_;
  LayerContext context_;
  HiddenStates input_;
  Values hidden_factors_, encoder_output_factors_;
};

/// Two sentences with two hypotheses each, decoded token by token after the first step, which has the tokens of a
/// prompt; in the middle the hypotheses of each sentence change places.
class DecodeCheck {
 public:
  DecodeCheck(Bench& bench, Execution& execution)
      : bench_(bench),
        pack_(make_pack(pairs(), ids)),
        context_(bench.context(execution, pack_, false)),
        hidden_(random_numbers(rows * length * bench.model.d_model, "decoded")) {
    if (bench.spec.has_encoder_output()) {
      encoder_output_ = random_tensor({pack_.source_rows.tokens, bench.model.d_model}, "memory");
      // Both hypotheses of a sentence read the same.
      auto const begins = to_host<std::int32_t>(pack_.source_rows.sequences.begin);
      auto const lengths = to_host<std::int32_t>(pack_.source_rows.sequences.length);
      for (std::size_t row = 1; row < rows; row += 2) {
        copy_from_doubles(encoder_output_.rows(begins[row], lengths[row]),
                          to_doubles(encoder_output_.rows(begins[row - 1], lengths[row - 1])));
      }
    }
  }

  void run(std::int64_t prompt, CheckResult& found) {
    Saved saved;
    Tensor const input = from_doubles(hidden_, DType::float64, {rows * length, bench_.model.d_model});
    Values const whole = to_doubles(bench_.layer->forward(context_, {input, encoder_output_}, saved).hidden);
    std::array<std::int32_t, rows> sequence{0, 1, 2, 3};  // of each row
    DecodeCache cache;
    for (std::int64_t time = prompt - 1; time < length; ++time) {
      DecodeStep const step = decode_step(time, time == prompt - 1 ? prompt : 1);
      if (time == length / 2) {
        std::array<std::int32_t, rows> const parents{1, 0, 3, 2};
        bench_.layer->reorder(context_, from_host<std::int32_t>(parents, {rows}), step, cache);
        sequence = parents;
      }
      Values const tokens = newest(hidden_, sequence, step);
      HiddenStates const output = bench_.layer->decode(
          context_, {from_doubles(tokens, DType::float64, {rows * step.tokens, bench_.model.d_model}), encoder_output_},
          step, cache);
      note(difference(step.tokens > 1 ? fmt::format("a decoded prompt of {} tokens beside forward's", step.tokens)
                                      : fmt::format("decoded token {} beside forward's", time),
                      to_doubles(output.hidden), newest(whole, sequence, step)),
           &CheckResult::output_error, found);
    }
  }

 private:
  static constexpr std::int64_t length = 4;  ///< of each hypothesis, with its start token
  static constexpr std::int64_t rows = 4;
  static constexpr std::int64_t capacity = 6;

  static std::vector<SentencePair> pairs() {
    return {{0, {5, 6}, {7, 3, 4}}, {1, {5, 6}, {4, 4, 8}}, {2, {7}, {3, 3, 5}}, {3, {7}, {6, 4, 3}}};
  }

  static Tensor integers(std::vector<std::int32_t> const& values) { return from_host<std::int32_t>(values, {rows}); }

  DecodeStep decode_step(std::int64_t time, std::int64_t tokens) const {
    std::vector<std::int32_t> queries;
    std::vector<std::int32_t> keys;
    std::vector<std::int32_t> position;
    for (std::int64_t row = 0; row < rows; ++row) {
      queries.push_back(static_cast<std::int32_t>(row * tokens));
      keys.push_back(static_cast<std::int32_t>(row * capacity));
      for (std::int64_t at = time + 1 - tokens; at <= time; ++at) {
        position.push_back(static_cast<std::int32_t>(at));
      }
    }
    auto const all = [](std::int64_t value) {
      return integers(std::vector<std::int32_t>(rows, static_cast<std::int32_t>(value)));
    };
    return {.time = time,
            .capacity = capacity,
            .queries = {integers(queries), all(tokens), rows, tokens},
            .keys = {integers(keys), all(time + 1), rows, time + 1},
            .encoder_output = pack_.source_rows.sequences,
            .position = from_host<std::int32_t>(position, {rows * tokens}),
            .tokens = tokens};
  }

  /// The step's tokens of each row, from [sequences * length, d_model].
  Values newest(Values const& all, std::array<std::int32_t, rows> const& sequence, DecodeStep const& step) const {
    Values tokens;
    for (std::int32_t const index : sequence) {
      auto const begin = all.begin() + (index * length + step.time + 1 - step.tokens) * bench_.model.d_model;
      tokens.insert(tokens.end(), begin, begin + step.tokens * bench_.model.d_model);
    }
    return tokens;
  }

  Bench& bench_;
  Pack pack_;
  LayerContext context_;
  Values hidden_;
  Tensor encoder_output_;
};

/// The checks of one layer.
class LayerCheck {
 public:
  LayerCheck(Registries const& registries, LayerRegistry::Entry const& entry, Execution& execution)
      : registries_(registries),
        entry_(entry),
        execution_(execution),
        run_({.operation = "layer", .implementation = entry.name, .origin = entry.origin, .problem = {}}) {}

  std::vector<CheckResult> run() {
    std::vector<LayerTrial> const trials =
        entry_.traits.trials.empty() ? std::vector<LayerTrial>{{.name = "no options"}} : entry_.traits.trials;
    for (LayerTrial const& trial : trials) {
      std::size_t const before = run_.results.size();
      std::string refusals;
      for (Side const side : {Side::source, Side::target}) {
        check(trial, side, refusals);
      }
      if (run_.results.size() == before) {
        run_.add(trial.name, 0, [&](CheckResult& found) { found.fault = "it cannot be built: " + refusals; });
      }
    }
    return std::move(run_.results);
  }

 private:
  /// Adds no result where the layer does not support the side: cross-attention needs an encoder output.
  void check(LayerTrial const& trial, Side side, std::string& refusals) {
    std::string const where = side == Side::source ? "without encoder output" : "with encoder output";
    run_.start(fmt::format("{}, {}, building it", trial.name, where));
    try {
      Bench bench(registries_, entry_, trial, side);
      run_.add(fmt::format("{}, {}, central differences", trial.name, where), difference_tolerance,
               [&](CheckResult& found) { GradientCheck(bench, side, execution_).run(found); });
      if (side == Side::target && entry_.traits.capabilities.decode) {
        for (auto const& [what, prompt] : {std::pair{"decoding", 1}, std::pair{"decoding after a prompt", 2}}) {
          run_.add(fmt::format("{}, {}, {}", trial.name, where, what), tolerance(DType::float64),
                   [&, tokens = prompt](CheckResult& found) { DecodeCheck(bench, execution_).run(tokens, found); });
        }
      }
    } catch (ConfigError const& error) {
      refusals += fmt::format("{}{}: {}", refusals.empty() ? "" : "; ", where, error.what());
    }
  }

  Registries const& registries_;
  LayerRegistry::Entry const& entry_;
  Execution& execution_;
  CheckRun run_;
};

}  // namespace

std::vector<CheckResult> check_layer(Registries const& registries, std::string const& name, Execution& execution) {
  return LayerCheck(registries, registries.layers.at(name, "a check"), execution).run();
}

}  // namespace heddle
