"""Which test executes which block. A block that is not in here fails `test_blocks.py`."""

PLAN = {
    "000/1": ("test_plugin_rlm.py::test_the_backend_is_imported_as_documented",),
    "000/2": ("test_plugin_rlm.py::test_the_plugin_is_installed_with_pip",),
    "000/3": ("test_plugin_rlm.py::test_the_backend_is_imported_as_documented",),
    "000/4": ("test_plugin_rlm.py::test_python_of_the_document_on_the_real_runtime",),
    "000/5": ("test_plugin_rlm.py::test_python_of_the_document_on_the_real_runtime",),
    "000/6": ("test_plugin_rlm.py::test_python_of_the_document_on_the_real_runtime",),
    "000/7": ("test_plugin_rlm.py::test_python_of_the_document_on_the_real_runtime",),
    "000/8": ("test_plugin_rlm.py::test_python_of_the_document_on_the_real_runtime",),
    "000/9": ("test_plugin_rlm.py::test_the_files_are_where_the_document_says",),
    "000/10": ("test_plugin_rlm.py::test_python_of_the_document_on_the_real_runtime",),
    "000/11": ("test_plugin_rlm.py::test_the_stub_says_exactly_this",),
    "000/12": ("test_plugin_rlm.py::test_the_development_commands",),
    "001/1": ("test_llm_plugin.py::test_the_commands_show_the_plugin_and_its_tools",),
    "002/1": ("test_commands.py::test_the_quickstart_of_rlm_runtime",),
    "002/2": ("test_rlm_runtime.py::test_the_example_with_a_fake_adapter",),
    "002/3": ("test_commands.py::test_the_quality_gates",),
    "003/1": ("test_commands.py::test_the_installation_with_uv",),
    "003/2": (
        "test_rlm_demo.py::test_the_demo_reads_a_key_from_dot_env",
        "test_commands.py::test_the_demo_with_the_key_of_the_document",
    ),
    "003/3": ("test_commands.py::test_the_demo_with_the_key_of_the_document",),
    "003/4": (
        "test_rlm_demo.py::test_the_demo_with_a_model_shows_a_real_child",
        "test_commands.py::test_the_demo_with_every_model_line",
    ),
    "003/5": ("test_rlm_demo.py::test_the_files_of_the_tree",),
    "004/1": (
        "test_overview.py::test_the_constructor_example",
        "test_overview.py::test_the_constructor_example_in_a_cloud",
    ),
    "004/2": ("test_overview.py::test_the_agent_example",),
    "004/3": ("test_overview.py::test_the_logger_example",),
    "004/4": ("test_commands.py::test_the_visualizer_answers_on_its_port",),
    "004/5": ("test_overview.py::test_the_citation_is_carried",),
}
"""By block: the tests in this folder that execute it, or compare it with what exists."""
