def measure_cell(run, compiler, compilation, options, progress): return compilation
def measure_call(target, args, kwargs, compilation, options, progress): return compilation
