#include <fmt/format.h>

#include <algorithm>
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
  static std::vector<Sample> pairs() { return {{4, {5, 6, 5}, {7}}, {9, {}, {4, 4, 8}}, {2, {7, 3}, {}}}; }

  HiddenStates random_input(Pack const& pack, std::string const& name = "") const {
    ModelConfig const& model = bench_.model;
    return {random_tensor({pack.rows(side_).tokens, model.d_model}, name + "input"),
            bench_.spec.has_encoder_output()
                ? random_tensor({pack.source_rows.tokens, model.encoder_columns()}, name + "memory")
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
    found.fault = here.text;
  }

  /// Forward of another micro-batch, as several may be in flight: backward needs what forward kept of its own one.
  void forward_another() {
    std::vector<Sample> const all = pairs();
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

/// Hypotheses decoded token by token after their first step, which has the tokens of a prompt: two of them, then two
/// more which enter later, then some of both in another order, one of which continues from a copy of another's cache.
class DecodeCheck {
 public:
  DecodeCheck(Bench& bench, Execution& execution)
      : bench_(bench),
        pack_(make_pack(pairs(), ids)),
        context_(bench.context(execution, pack_, false)),
        source_begin_(to_host<std::int32_t>(pack_.source_rows.sequences.begin)),
        source_length_(to_host<std::int32_t>(pack_.source_rows.sequences.length)),
        hidden_(random_numbers(sequences * length * bench.model.d_model, "decoded")) {
    if (bench.spec.has_encoder_output()) {
      encoder_output_ = random_tensor({pack_.source_rows.tokens, bench.model.encoder_columns()}, "memory");
    }
  }

  void run(std::int32_t prompt, CheckResult& found) {
    Saved saved;
    Tensor const input = from_doubles(hidden_, DType::float64, {sequences * length, bench_.model.d_model});
    whole_ = to_doubles(bench_.layer->forward(context_, {input, encoder_output_}, saved).hidden);
    DecodeCache cache;
    std::int32_t const time = prompt - 1;
    decode({{0, 0, 0, time}, {1, 1, 1, time}}, prompt, cache, found);
    decode({{0, 0, 0, time + 1}, {1, 1, 1, time + 1}}, 0, cache, found);
    decode({{2, 2, 2, time}, {3, 3, 3, time}}, prompt, cache, found);
    decode({{3, 3, 3, time + 1}, {0, 1, 0, time + 2}, {0, 0, 0, time + 2}}, 0, cache, found);
  }

 private:
  using Integers = std::vector<std::int32_t>;
  static constexpr std::int32_t length = 4;  ///< length of each sequence, with its start token
  static constexpr std::int32_t sequences = 4;
  static constexpr std::int32_t capacity = 6;  ///< token rows of a hypothesis's place

  /// A hypothesis in a step: its tokens are those of a sequence.
  struct Row {
    std::int32_t sequence, place, parent, time;
  };

  static std::vector<Sample> pairs() {
    return {{0, {5, 6}, {7, 3, 4}}, {1, {5, 6, 8}, {4, 4, 8}}, {2, {7}, {3, 3, 5}}, {3, {9}, {6, 4, 3}}};
  }

  static Tensor integers(Integers const& values) {
    return values.empty() ? Tensor() : from_host<std::int32_t>(values, {std::ssize(values)});
  }

  /// The integers of a step.
  struct Lists {
    Integers query, query_length, key, key_length, source, source_length, position, written, copied, copies, place,
        parent, sources;
  };

  /// The lists of hypotheses that all have a prompt of `prompt` tokens or, if it is 0, one new token.
  Lists lists_of(std::vector<Row> const& rows, std::int32_t prompt) const {
    Lists lists;
    for (auto const& [sequence, place, parent, time] : rows) {
      lists.query.push_back(static_cast<std::int32_t>(lists.position.size()));
      lists.query_length.push_back(std::max(prompt, 1));
      lists.key.push_back(place * capacity);
      lists.key_length.push_back(time + 1);
      lists.source.push_back(source_begin_[static_cast<std::size_t>(sequence)]);
      lists.source_length.push_back(source_length_[static_cast<std::size_t>(sequence)]);
      lists.place.push_back(place);
      lists.parent.push_back(parent);
      for (std::int32_t at = time + 1 - lists.query_length.back(); at <= time; ++at) {
        lists.position.push_back(at);
        lists.written.push_back(place * capacity + at);
      }
      for (std::int32_t at = 0; place != parent && at < time; ++at) {
        lists.copied.push_back(parent * capacity + at);
        lists.copies.push_back(place * capacity + at);
      }
      for (std::int32_t row = 0; prompt > 0 && row < lists.source_length.back(); ++row) {
        lists.sources.push_back(lists.source.back() + row);
      }
    }
    return lists;
  }

  void decode(std::vector<Row> const& rows, std::int32_t prompt, DecodeCache& cache, CheckResult& found) {
    Lists const lists = lists_of(rows, prompt);
    auto const sequences_of = [&](Integers const& begin, Integers const& lengths) {
      return Sequences{integers(begin), integers(lengths), std::ssize(rows), *std::ranges::max_element(lengths)};
    };
    std::int64_t const places = *std::ranges::max_element(lists.place) + 1;
    DecodeStep const step{.first = prompt > 0,
                          .queries = sequences_of(lists.query, lists.query_length),
                          .keys = sequences_of(lists.key, lists.key_length),
                          .encoder_output = sequences_of(lists.source, lists.source_length),
                          .position = integers(lists.position),
                          .tokens = {places * capacity, integers(lists.written)},
                          .copied = integers(lists.copied),
                          .copies = integers(lists.copies),
                          .encoder_rows = {pack_.source_rows.tokens, integers(lists.sources)},
                          .states = {places, integers(lists.place)},
                          .previous_state = integers(lists.parent)};
    Tensor const encoder_output = encoder_output_.empty() || prompt == 0
                                      ? Tensor()
                                      : encoder_output_.rows(lists.sources.front(), std::ssize(lists.sources));
    Tensor const hidden =
        from_doubles(newest(hidden_, rows, step), DType::float64, {std::ssize(lists.position), bench_.model.d_model});
    HiddenStates const output = bench_.layer->decode(context_, {hidden, encoder_output}, step, cache);
    note(difference(prompt > 1 ? fmt::format("a decoded prompt of {} tokens beside forward's", prompt)
                               : fmt::format("decoded token {} beside forward's", rows.back().time),
                    to_doubles(output.hidden), newest(whole_, rows, step)),
         &CheckResult::output_error, found);
  }

  /// The step's tokens of each row, from [sequences * length, d_model].
  Values newest(Values const& all, std::vector<Row> const& rows, DecodeStep const& step) const {
    Values tokens;
    std::int64_t const count = step.queries.max_length;
    for (Row const& row : rows) {
      auto const begin = all.begin() + (row.sequence * length + row.time + 1 - count) * bench_.model.d_model;
      tokens.insert(tokens.end(), begin, begin + count * bench_.model.d_model);
    }
    return tokens;
  }

  Bench& bench_;
  Pack pack_;
  LayerContext context_;
  Integers source_begin_, source_length_;  ///< of the sequences in encoder_output_
  Values hidden_, whole_;
  Tensor encoder_output_;
};

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
