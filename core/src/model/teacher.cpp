#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/model/teacher.hpp>
#include <iterator>

namespace heddle {

namespace {

ModelConfig checked(ModelConfig teacher, ModelConfig const& student, LayerRegistry const& layers) {
  ModelDescription const own = describe_model(teacher, layers);
  ModelDescription const its = describe_model(student, layers);
  auto const sides = [](ModelDescription const& model) {
    std::vector<Side> all;
    std::ranges::transform(model.stacks, std::back_inserter(all), &StackDescription::side);
    return all;
  };
  if (sides(own) != sides(its) || own.needs_prefixes() != its.needs_prefixes()) {
    throw ConfigError(
        "a teacher with other stacks than the student's: expected both to be encoder-decoder, "
        "decoder-only or encoder-only models, with the same inputs");
  }
  teacher.frozen.rounded = false;
  return teacher;
}

ParallelState on_one_stage(ParallelState parallel) {
  parallel.pipeline = Communicator::self();
  return parallel;
}

}  // namespace

Teacher::Teacher(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary,
                 ModelConfig const& model)
    : config_(checked(model, spec.model, layers)),
      parallel_(on_one_stage(spec.parallel)),
      parameters_(spec.parallel.mesh),
      model_({.name = "",
              .model = config_,
              .dtype = spec.dtype,
              .kernels = spec.kernels,
              .parallel = parallel_,
              .parameters = parameters_},
             layers, vocabulary) {
  parameters_.arrange();
}

OutputLoss::Teacher Teacher::output(LayerContext const& context) const {
  LayerContext own{
      .execution = context.execution, .arena = context.arena, .pack = context.pack, .row_split = context.row_split};
  ModelChunk const& whole = model_.parts().front();
  return {&whole.output(), whole.infer(own)};
}

std::deque<Teacher> make_teachers(Model& student, LayerSpec const& spec, LayerRegistry const& layers,
                                  VocabularySizes const& vocabulary, Config const& config) {
  std::deque<Teacher> teachers;
  if (!student.parts().back().ends_model()) {
    return teachers;
  }
  std::vector<Teacher const*> list;
  for (ModelConfig const& model : config.teachers) {
    list.push_back(&teachers.emplace_back(spec, layers, vocabulary, model));
  }
  student.set_teachers(std::move(list), config.train.teacher_weight);
  return teachers;
}

}  // namespace heddle
