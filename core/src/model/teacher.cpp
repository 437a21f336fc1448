#include <algorithm>
#include <heddle/core/model/teacher.hpp>

namespace heddle {

namespace {

ModelConfig unrounded(ModelConfig model) {
  model.frozen.rounded = false;
  return model;
}

ParallelState on_one_stage(ParallelState parallel) {
  parallel.pipeline = Communicator::self();
  return parallel;
}

}  // namespace

bool predicts_alike(ModelDescription const& teacher, ModelDescription const& student) {
  return std::ranges::equal(teacher.stacks, student.stacks, {}, &StackDescription::side, &StackDescription::side) &&
         teacher.needs_prefixes() == student.needs_prefixes();
}

Teacher::Teacher(LayerSpec const& spec, LayerRegistry const& layers, VocabularySizes const& vocabulary,
                 ModelConfig const& model)
    : config_(unrounded(model)),
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
