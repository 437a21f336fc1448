#include <algorithm>
#include <deque>
#include <heddle/core/layers/linear.hpp>
#include <heddle/core/operations/tensor_ops.hpp>
#include <heddle/core/parallel/backoff.hpp>
#include <heddle/dist/pipeline/pipeline.hpp>
#include <map>
#include <numeric>
#include <span>

#include "arena_slots.hpp"

namespace heddle {

namespace {

/// The number of actions with messages whose receives are posted ahead: the next forward's and the next backward's.
constexpr std::size_t look_ahead = 2;

enum class Field : std::uint8_t { hidden, encoder_output };

/// A message's fields by name, those that are present.
template <class Visit>
void for_each_tensor(HiddenStates const& stream, Visit const& visit) {
  if (!stream.hidden.empty()) {
    visit(Field::hidden, stream.hidden);
  }
  if (!stream.encoder_output.empty()) {
    visit(Field::encoder_output, stream.encoder_output);
  }
}

Direction direction_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return Direction::forward;
    case Pass::backward:
      return Direction::backward;
    case Pass::weights:
      return Direction::weights;
  }
  return Direction::forward;
}

}  // namespace

class Pipeline::Run {
 public:
  Run(Pipeline& pipeline, MicroBatchSource const& source, PipelineStep const& step, bool training)
      : pipeline_(pipeline),
        source_(source),
        step_(step),
        training_(training),
        sums_(pipeline.zeroed_sums(step.micro_batches.count())) {
    if (!training) {
      step_.loss.scale = 0;
      step_.loss.r_drop = 0;  // there is one pass
    }
  }

  /// Returns the micro-batches' sums, in kernels' memory.
  Tensor act(std::span<PipelineAction const> actions) {
    std::size_t ahead = 0;
    for (auto next = actions.begin(); next != actions.end() || !posted_.empty();) {
      for (; next != actions.end() && ahead <= look_ahead; ++next) {
        posted_.push_back(post(*next));
        ahead += next->pass == Pass::weights ? 0 : 1;
      }
      Call call = std::move(posted_.front());
      posted_.pop_front();
      ahead -= call.action.pass == Pass::weights ? 0 : 1;
      std::ranges::for_each(call.receives, [this](Transfer& receive) { wait(receive); });
      perform(call);
    }
    pipeline_.messages_->finish();
    pipeline_.activations_->finish();
    return sums_;
  }

 private:
  using Slot = ArenaSlots::Slot;

  struct Call {
    PipelineAction action;
    Slot* slot = nullptr;  ///< for its input and, except in a training forward, its output
    HiddenStates input;
    std::vector<Transfer> receives;
  };

  struct Activations {
    Slot* slot = nullptr;
    Slot* input = nullptr;
    Saved saved;
    std::optional<DeferredGradients> weights;  ///< between the two parts of a backward pass that is split
  };

  struct MicroBatch {
    Pack pack;
    std::vector<Activations> parts;
    int passes_left = 0;
  };

  int stages() const { return pipeline_.pipeline_.size(); }
  int parts() const { return static_cast<int>(pipeline_.model_.parts().size()); }
  int virtual_stage(PipelineAction const& action) const { return action.part * stages() + pipeline_.pipeline_.rank(); }
  /// Whether only other replicas have this micro-batch.
  bool is_absent(PipelineAction const& action) const { return action.micro_batch >= step_.micro_batches.count(); }
  ModelChunk const& part(PipelineAction const& action) const {
    return pipeline_.model_.parts()[static_cast<std::size_t>(action.part)];
  }
  Activations& activations(PipelineAction const& action) {
    return micro_batches_.at(action.micro_batch).parts[static_cast<std::size_t>(action.part)];
  }
  LayerContext context(PipelineAction const& action, Arena& arena) {
    Pack const& pack = micro_batches_.at(action.micro_batch).pack;
    bool const last = action.micro_batch + 1 == step_.micro_batches.count();
    return {.execution = pipeline_.execution_,
            .arena = arena,
            .pack = pack,
            .training = training_,
            .seed = step_.seed,
            .step = step_.step,
            .row_split = step_.row_split,
            .gradients = training_ && last ? step_.gradients : nullptr,
            .access = step_.access};
  }

  /// Waits for the input; gradient reductions make progress meanwhile.
  void wait(Transfer& receive) const {
    if (!training_ || step_.gradients == nullptr) {
      receive.wait();
      return;
    }
    WorkScope const work(step_.observer, {WorkKind::waiting, "pipeline.receive"});
    while (!receive.progress()) {
      step_.gradients->progress();
      yield_core();
    }
  }

  Call post(PipelineAction const& action) {
    if (action.pass == Pass::weights) {
      return {action, nullptr, {}, {}};
    }
    if (is_absent(action)) {
      micro_batches_[action.micro_batch].parts.resize(static_cast<std::size_t>(parts()));
      return {action, nullptr, {}, {}};
    }
    bool const forward = action.pass == Pass::forward;
    if (forward && action.part == 0) {
      int const passes = !training_ ? 1 : pipeline_.split_backward_ ? 3 : 2;
      MicroBatch micro_batch{source_.micro_batch(step_.micro_batches.begin + action.micro_batch), {}, parts() * passes};
      micro_batch.parts.resize(static_cast<std::size_t>(parts()));
      micro_batches_.emplace(action.micro_batch, std::move(micro_batch));
    }
    if (!training_) {
      // Forward passes depend on no later stage, so the first stage would run far ahead of the others. An encoder
      // part's outputs wait for the end of their group, which has less than two for each stage.
      pipeline_.messages_->finish(2 * static_cast<std::size_t>(stages()));
    }
    Call call{action, &pipeline_.messages_->take(), {}, {}};
    LayerContext here = context(action, call.slot->arena);
    int const source = virtual_stage(action) + (forward ? -1 : 1);
    if (source >= 0 && source < stages() * parts()) {
      call.input = forward ? part(action).allocate_input(here) : part(action).allocate_grad_output(here);
      for_each_tensor(call.input, [&](Field field, Tensor const& tensor) {
        call.receives.push_back(pipeline_.pipeline_.start_receive(tensor, source % stages(),
                                                                  tag(action.pass, virtual_stage(action), field)));
      });
    }
    return call;
  }

  void perform(Call& call) {
    if (is_absent(call.action)) {
      attend(call.action);
      return;
    }
    WorkScope const work(step_.observer, {.kind = WorkKind::pass,
                                          .name = "pass",
                                          .direction = direction_of(call.action.pass),
                                          .micro_batch = step_.micro_batches.begin + call.action.micro_batch,
                                          .part = call.action.part});
    if (call.action.pass == Pass::backward) {
      backward(call);
    } else if (call.action.pass == Pass::weights) {
      weights(call.action);
    } else if (training_) {
      Activations& kept = activations(call.action);
      kept.slot = &pipeline_.activations_->take();
      kept.input = call.slot;
      kept.saved = pipeline_.take_saved(call.action.part);
      send(call, *kept.slot, forward(call, kept.slot->arena, kept.saved));
    } else {
      Slot& here = pipeline_.activations_->take();
      Saved saved;
      send_copy(call, forward(call, here.arena, saved));
      pipeline_.activations_->release(here);
      pipeline_.messages_->release(*call.slot);
    }
    MicroBatch& micro_batch = micro_batches_.at(call.action.micro_batch);
    if (--micro_batch.passes_left == 0) {
      micro_batches_.erase(call.action.micro_batch);
    }
  }

  void attend(PipelineAction const& action) {
    if (action.pass == Pass::weights) {
      return;
    }
    Activations& kept = activations(action);
    if (action.pass == Pass::forward) {
      kept.slot = &pipeline_.activations_->take();
    }
    {
      bool const forward = action.pass == Pass::forward;
      ArenaScope const scope(pipeline_.temporary_);
      LayerContext here = context(action, forward ? kept.slot->arena : pipeline_.temporary_);
      part(action).attend(here, direction_of(action.pass), training_, kept.saved);
    }
    if (action.pass == Pass::backward || !training_) {
      pipeline_.activations_->release(*kept.slot);
    }
  }

  HiddenStates forward(Call const& call, Arena& arena, Saved& saved) {
    LayerContext here = context(call.action, arena);
    OutputLoss::Training training = step_.loss;
    training.sums = sums_.rows(call.action.micro_batch, 1);
    if (step_.row_losses != nullptr && part(call.action).ends_model()) {
      training.row_losses = step_.row_losses->add(part(call.action).output_samples(here.pack));
    }
    return part(call.action).forward(here, call.input, saved, training);
  }

  void backward(Call& call) {
    Activations& kept = activations(call.action);
    {
      ArenaScope const scope(pipeline_.temporary_);
      LayerContext here = context(call.action, pipeline_.temporary_);
      if (pipeline_.split_backward_) {
        here.deferred = &kept.weights.emplace(kept.slot->arena, kept.input->arena, pipeline_.tensor_ops_);
      }
      send_copy(call, part(call.action).backward(here, call.input, kept.saved));
    }
    pipeline_.spare_saved_[static_cast<std::size_t>(call.action.part)].push_back(std::move(kept.saved));
    if (!pipeline_.split_backward_) {
      release(kept);
    }
    pipeline_.messages_->release(*call.slot);
  }

  void weights(PipelineAction const& action) {
    Activations& kept = activations(action);
    ArenaScope const scope(pipeline_.temporary_);
    LayerContext here = context(action, pipeline_.temporary_);
    // The first part has just sent what the stage before waits for.
    kept.weights->compute(here, [this] {
      pipeline_.messages_->progress();
      pipeline_.activations_->progress();
    });
    release(kept);
  }

  void release(Activations const& kept) {
    pipeline_.activations_->release(*kept.slot);
    pipeline_.messages_->release(*kept.input);
  }

  /// Sends as send does, from the call's own slot: tensors outside it are copied there, so that their memory is free.
  void send_copy(Call& call, HiddenStates stream) {
    if (!has_destination(call.action)) {
      return;
    }
    auto const moved = [&](Tensor const& tensor) {
      bool const stays =
          tensor.empty() || tensor.raw() == call.input.hidden.raw() || tensor.raw() == call.input.encoder_output.raw();
      if (stays) {
        return tensor;
      }
      Tensor const copy = call.slot->arena.allocate(tensor.dtype(), tensor.shape());
      pipeline_.tensor_ops_->copy(pipeline_.execution_, tensor, copy);
      return copy;
    };
    send(call, *call.slot, {moved(stream.hidden), moved(stream.encoder_output)});
  }

  /// Starts to send the next virtual stage's input from `slot`; an encoder output that is only passed on stays in the
  /// call's own slot.
  void send(Call const& call, Slot& slot, HiddenStates const& stream) {
    if (!has_destination(call.action)) {
      return;
    }
    int const to = destination(call.action);
    for_each_tensor(stream, [&](Field field, Tensor const& tensor) {
      Slot& owner = tensor.raw() == call.input.encoder_output.raw() ? *call.slot : slot;
      owner.sends.push_back(pipeline_.pipeline_.start_send(tensor, to % stages(), tag(call.action.pass, to, field)));
    });
  }

  int destination(PipelineAction const& action) const {
    return virtual_stage(action) + (action.pass == Pass::forward ? 1 : -1);
  }
  bool has_destination(PipelineAction const& action) const {
    int const to = destination(action);
    return to >= 0 && to < stages() * parts();
  }

  /// Messages with one tag are in the micro-batches' order on both sides; the receiving part's number distinguishes
  /// parts.
  int tag(Pass pass, int receiver, Field field) const {
    return 4 * (receiver / stages()) + 2 * static_cast<int>(pass) + static_cast<int>(field);
  }

  Pipeline& pipeline_;
  MicroBatchSource const& source_;
  PipelineStep step_;
  bool training_;
  std::map<std::int64_t, MicroBatch> micro_batches_;
  std::deque<Call> posted_;
  Tensor sums_;  ///< [micro-batches, SoftmaxCrossEntropy::sums_size]: of the output, and of layers with a loss
};

Pipeline::Pipeline(Communicator const& pipeline, Model const& model, std::shared_ptr<TensorOps> tensor_ops,
                   Execution& execution, Options const& options)
    : pipeline_(pipeline),
      model_(model),
      tensor_ops_(std::move(tensor_ops)),
      execution_(execution),
      split_backward_(options.split_backward),
      activations_(std::make_unique<ArenaSlots>(options.arenas)),
      messages_(std::make_unique<ArenaSlots>(options.arenas)),
      temporary_(Arena::default_capacity(options.arenas), options.arenas) {}

Pipeline::~Pipeline() = default;

PipelinePosition Pipeline::place() const {
  return {pipeline_.rank(), pipeline_.size(), static_cast<int>(model_.parts().size()), split_backward_};
}

Tensor Pipeline::train(MicroBatchSource const& source, PipelineStep const& step) {
  return Run(*this, source, step, true).act(training_actions(place(), step.rounds()));
}

std::vector<LossSums> Pipeline::evaluate(MicroBatchSource const& source, PipelineStep const& step) {
  Tensor const sums = Run(*this, source, step, false).act(forward_actions(place(), step.rounds()));
  // Once for all micro-batches of this call, with no wait for the kernels between them.
  return model_.parts().back().ends_model() ? fetch_loss_sums(sums)
                                            : std::vector<LossSums>(static_cast<std::size_t>(sums.dim(0)));
}

Saved Pipeline::take_saved(int part) {
  spare_saved_.resize(model_.parts().size());
  auto& spare = spare_saved_[static_cast<std::size_t>(part)];
  if (spare.empty()) {
    return {};
  }
  Saved saved = std::move(spare.back());
  spare.pop_back();
  return saved;
}

Tensor Pipeline::zeroed_sums(std::int64_t micro_batches) {
  if (loss_sums_.empty() || loss_sums_.dim(0) < micro_batches) {
    // More than this step needs, because the next ones may have more micro-batches.
    loss_sums_ = Tensor::allocate(DType::float64, {2 * micro_batches + 2, SoftmaxCrossEntropy::sums_size});
  }
  Tensor const sums = loss_sums_.rows(0, micro_batches);
  tensor_ops_->fill(execution_, sums, 0);
  return sums;
}

PipelineMemory Pipeline::peak_memory() const {
  return {activations_->peaks(), messages_->peaks(), temporary_.peak()};
}

void Pipeline::reserve(PipelineMemory const& memory) {
  activations_->reserve(memory.activations);
  messages_->reserve(memory.messages);
  temporary_.plan(with_margin(memory.temporary));
  temporary_.reserve(memory.temporary);
}

std::size_t with_margin(std::size_t planned_bytes) {
  return planned_bytes + planned_bytes / 8 + (std::size_t{1} << 16);
}

std::size_t PipelineMemory::total() const {
  std::size_t bytes = temporary;
  for (auto const* const arenas : {&activations, &messages}) {
    bytes = std::accumulate(arenas->begin(), arenas->end(), bytes);
  }
  return bytes;
}

}  // namespace heddle
