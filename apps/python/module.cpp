#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <heddle/dataset.hpp>
#include <heddle/model.hpp>
#include <heddle/run.hpp>

#include "engine.hpp"

// The extension module of the Python package: what <heddle/model.hpp>, <heddle/run.hpp> and <heddle/dataset.hpp> have,
// as it is. Names and defaults for users are in heddle/__init__.py.

namespace heddle::python {

namespace py = pybind11;

namespace {

/// Runs work on the engine's thread while other threads of Python run.
template <class Work>
auto compute(Work&& work) {
  py::gil_scoped_release const released;
  return Engine::instance().run(std::forward<Work>(work));
}

/// An array with the vector's own memory.
template <class Value>
py::array_t<Value> array_of(std::vector<Value> values, std::vector<py::ssize_t> shape = {}) {
  auto* const kept = new std::vector<Value>(std::move(values));
  py::capsule const owner(kept, [](void* memory) { delete static_cast<std::vector<Value>*>(memory); });
  if (shape.empty()) {
    shape = {static_cast<py::ssize_t>(kept->size())};
  }
  return py::array_t<Value>(std::move(shape), kept->data(), owner);
}

/// An open model. Calls from several threads wait for one another.
class Model {
 public:
  Model(TrainedModelOptions options) {
    model_ = compute([&](Execution& execution) {
      options.execution = &execution;
      return TrainedModel::open(options);
    });
  }
  Model(Model const&) = delete;
  Model& operator=(Model const&) = delete;
  ~Model() {
    try {
      compute([this](Execution&) { model_.reset(); });
    } catch (Error const&) {
      static_cast<void>(model_.release());  // of a forked process: its threads are the parent's
    }
  }

  std::vector<std::vector<Translation>> translate(std::vector<std::string> const& lines,
                                                  GenerationOptions const& options, Languages const& languages) {
    return compute([&](Execution&) { return heddle::translate(*model_, lines, options, languages); });
  }
  std::vector<std::vector<Translation>> generate(std::vector<std::string> const& prompts,
                                                 GenerationOptions const& options) {
    return compute([&](Execution&) { return heddle::generate(*model_, prompts, options); });
  }
  std::vector<double> score(std::vector<std::string> const& sources, std::vector<std::string> const& targets,
                            Languages const& languages) {
    return compute([&](Execution&) { return heddle::score(*model_, sources, targets, languages); });
  }
  py::array_t<float> embed(std::vector<std::string> const& lines, Languages const& languages) {
    auto const vectors = compute([&](Execution&) { return heddle::embed(*model_, lines, languages); });
    std::vector<float> all;
    for (std::vector<float> const& vector : vectors) {
      all.insert(all.end(), vector.begin(), vector.end());
    }
    auto const rows = static_cast<py::ssize_t>(vectors.size());
    return array_of(std::move(all), {rows, rows == 0 ? 0 : static_cast<py::ssize_t>(vectors.front().size())});
  }

  std::string digest() const { return model_->digest(); }
  std::string config() const { return to_toml(model_->config()); }

 private:
  std::unique_ptr<TrainedModel> model_;
};

/// Tensors of one checkpoint; of those that a run has, the one that it would be translated with.
Checkpoint open_one(std::string const& path, std::string const& which) {
  py::gil_scoped_release const released;
  return std::move(open_checkpoints({.checkpoint = path, .which = which}, {}).checkpoints.front());
}

py::array_t<float> read_tensor(Checkpoint const& checkpoint, std::string const& name, std::string const& key) {
  auto const& extents = checkpoint.tensor(name).shape_of(key);
  std::vector<float> values = [&] {
    py::gil_scoped_release const released;
    return checkpoint.read(name, key);
  }();
  return array_of(std::move(values), {extents.begin(), extents.end()});
}

/// The steps and values of each number of a run.
py::dict metrics_of(std::string const& file) {
  py::dict all;
  for (auto& [key, series] : read_metrics(file).series) {
    all[py::str(key)] = py::make_tuple(array_of(std::move(series.steps)), array_of(std::move(series.values)));
  }
  return all;
}

SampleLength side_of(Dataset const& dataset, std::string const& side) {
  if (dataset.has_lines()) {
    return SampleLength::line;
  }
  if (side != "source" && side != "target") {
    throw UsageError("a sample has no side \"{}\"; expected \"source\" or \"target\"", side);
  }
  return side == "source" ? SampleLength::source : SampleLength::target;
}

void add_errors(py::module_& module) {
  // Never destroyed: Python may have ended before static objects do.
  static auto& error = *new py::exception<Error>(module, "Error", PyExc_RuntimeError);
  static auto& usage =
      *new py::exception<UsageError>(module, "UsageError", py::make_tuple(error, py::handle(PyExc_ValueError)));
  static auto& data = *new py::exception<DataError>(module, "DataError", error);
  static auto& config = *new py::exception<ConfigError>(module, "ConfigError", error);
  for (py::object const& each : {py::object(error), py::object(usage), py::object(data), py::object(config)}) {
    each.attr("__module__") = "heddle";
  }
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (UsageError const& caught) {
      usage(caught.what());
    } catch (DataError const& caught) {
      data(caught.what());
    } catch (ConfigError const& caught) {
      config(caught.what());
    } catch (Error const& caught) {
      error(caught.what());
    }
  });
}

void add_generation(py::module_& module) {
  py::class_<Sampling>(module, "Sampling")
      .def(py::init<>())
      .def_readwrite("temperature", &Sampling::temperature)
      .def_readwrite("top_k", &Sampling::top_k)
      .def_readwrite("top_p", &Sampling::top_p)
      .def_readwrite("min_p", &Sampling::min_p)
      .def_readwrite("seed", &Sampling::seed);
  py::class_<GenerationOptions>(module, "GenerationOptions")
      .def(py::init<>())
      .def_readwrite("beam_size", &GenerationOptions::beam_size)
      .def_readwrite("n_best", &GenerationOptions::n_best)
      .def_readwrite("max_length", &GenerationOptions::max_length)
      .def_readwrite("min_length", &GenerationOptions::min_length)
      .def_readwrite("length_penalty", &GenerationOptions::length_penalty)
      .def_readwrite("word_penalty", &GenerationOptions::word_penalty)
      .def_readwrite("patience", &GenerationOptions::patience)
      .def_readwrite("batch_tokens", &GenerationOptions::batch_tokens)
      .def_readwrite("no_repeat_ngram", &GenerationOptions::no_repeat_ngram)
      .def_readwrite("beam_groups", &GenerationOptions::beam_groups)
      .def_readwrite("diversity", &GenerationOptions::diversity)
      .def_readwrite("allow_unknown", &GenerationOptions::allow_unknown)
      .def_readwrite("sampling", &GenerationOptions::sampling);
  py::class_<Translation>(module, "Hypothesis")
      .def_readonly("text", &Translation::text)
      .def_readonly("score", &Translation::score)
      .def_readonly("log_probability", &Translation::log_probability)
      .def_readonly("tokens", &Translation::tokens)
      .def("__repr__", [](Translation const& found) {
        return py::str("Hypothesis(text={!r}, score={})").format(found.text, found.score);
      });
  py::class_<Languages>(module, "Languages").def(py::init([](std::string source, std::string target) {
    return Languages{std::move(source), std::move(target)};
  }));
}

}  // namespace

PYBIND11_MODULE(_heddle, module) {
  module.attr("__version__") = HEDDLE_VERSION;
  add_errors(module);
  add_generation(module);
  py::class_<TrainedModelOptions>(module, "ModelOptions")
      .def(py::init<>())
      .def_readwrite("checkpoint", &TrainedModelOptions::checkpoint)
      .def_readwrite("which", &TrainedModelOptions::which)
      .def_readwrite("average", &TrainedModelOptions::average)
      .def_readwrite("average_by", &TrainedModelOptions::average_by)
      .def_readwrite("adapter", &TrainedModelOptions::adapter)
      .def_readwrite("ensemble", &TrainedModelOptions::ensemble)
      .def_readwrite("weights", &TrainedModelOptions::weights)
      .def_readwrite("overrides", &TrainedModelOptions::overrides)
      .def_readwrite("quantize", &TrainedModelOptions::quantize)
      .def_readwrite("trust_plugins", &TrainedModelOptions::trust_plugins)
      .def_readwrite("plugins", &TrainedModelOptions::plugins);
  py::class_<Model>(module, "Model")
      .def(py::init<TrainedModelOptions>())
      .def("translate", &Model::translate)
      .def("generate", &Model::generate)
      .def("score", &Model::score)
      .def("embed", &Model::embed)
      .def("digest", &Model::digest)
      .def("config", &Model::config);
  py::class_<Dataset>(module, "Dataset")
      .def(py::init([](std::string const& path) {
        py::gil_scoped_release const released;
        std::vector<std::string> files;
        for (auto const& file : datasets_at(path)) {
          files.push_back(file.string());
        }
        return Dataset::open(files);
      }))
      .def("__len__", &Dataset::size)
      .def("has_lines", &Dataset::has_lines)
      .def("digest", &Dataset::digest)
      .def("read", [](Dataset const& dataset, std::string const& side, std::int64_t index) {
        std::vector<std::int32_t> tokens;
        dataset.read(side_of(dataset, side), index, tokens);
        return array_of(std::move(tokens));
      });
  py::class_<Checkpoint>(module, "Checkpoint")
      .def(py::init(&open_one))
      .def("read", &read_tensor)
      .def("step", [](Checkpoint const& checkpoint) { return checkpoint.state().step; })
      .def("names",
           [](Checkpoint const& checkpoint) {
             std::vector<std::string> names;
             for (TensorInfo const& tensor : checkpoint.tensors()) {
               names.push_back(tensor.name);
             }
             return names;
           })
      .def("keys", [](Checkpoint const& checkpoint, std::string const& name) { return checkpoint.tensor(name).keys; })
      .def("shape", [](Checkpoint const& checkpoint, std::string const& name) {
        return checkpoint.tensor(name).shape_of(value_key);
      });
  module.def("read_metrics", &metrics_of);
}

}  // namespace heddle::python
